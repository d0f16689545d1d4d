"""python -m brinell"""

from brinell.cli.main import main

main()
