# Many small pieces.
local.piece_bytes = 65536
local.pull_bytes = 1000000000
