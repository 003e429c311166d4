"""The ray runner: the same slices and shard tasks, as Ray tasks on the nodes of a cluster.

runner.py     the Runner: connects when first needed, checks the nodes, delegates
cluster.py    the connection, the nodes and how many workers each can hold
facts.py      what every node must share with the driver: versions, vocabulary, storage
input_cutting.py    cutting of inputs into spans on the nodes, for the plan
in_flight.py  slices and shard tasks in the cluster, from the first attempt to record or loss
ray_task.py   one of these tasks: where it is, how to end it
heartbeats.py workers report progress, and the driver reads it
remote.py     what runs on the nodes

Work is done when it has a record on storage: Ray's object store holds no token, its retries are
off, and its lineage is never used. Importing this package does not import ray; remote.py is the
only module that the nodes need.
"""
