"""`push`: uploads a finished dataset to the Hugging Face Hub.

upload.py sends the dataset, card.py writes README.md.
"""

from tokenmill.dataset.push.upload import Pushed, push

__all__ = ["Pushed", "push"]
