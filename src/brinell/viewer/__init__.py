"""`brinell view`: runs in a browser, live where a model can be opened. Starting it imports no torch.

index.py     the runs that are shown, by short ids
digest.py    images x operators in arrays, computed once per run
content.py   what pages ask for, as JSON or bytes by path: the server and the bundle answer with the same
sequences.py the rows of one image under one operator
server.py    HTTP: routes, headers, token
images.py    thumbnails and replayed images (torch, imported late)
live.py      models that answer now (torch, imported late)
static/      the front end: plain ES modules, no build step
"""
