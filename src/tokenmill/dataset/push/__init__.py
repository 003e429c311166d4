"""`push`: uploads a finished dataset to the Hugging Face Hub.

pushing.py is the file to read first; repository.py makes the requests, card.py writes README.md.
"""

from tokenmill.dataset.push.pushing import Pushed, push

__all__ = ["Pushed", "push"]
