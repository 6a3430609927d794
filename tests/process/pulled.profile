# Large messages between ranks of a host are read where they lie, whatever this machine does by itself.
local.pull_bytes = 1
