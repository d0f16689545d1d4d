"""python -m brinell"""

from brinell.cli import main

main()
