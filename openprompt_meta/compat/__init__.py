"""The only code that knows which versions of transformers, OpenPrompt and learn2learn are installed.

* :mod:`~openprompt_meta.compat.versions`: what is installed and what is supported.
* :mod:`~openprompt_meta.compat.bridge`: gives OpenPrompt what it needs of transformers and newer ones no longer have.
* :mod:`~openprompt_meta.compat.import_hook`: does so when ``openprompt`` is imported.
* :mod:`~openprompt_meta.compat.maml`: learn2learn's MAML without gym and torchvision.
* :mod:`~openprompt_meta.compat.doctor`: the report behind ``openprompt-meta doctor``.

Nothing is imported here, so that ``import openprompt_meta`` stays cheap.
"""
