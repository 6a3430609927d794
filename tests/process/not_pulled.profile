# No message is read where it lies, whatever this machine does by itself.
local.pull_bytes = 1000000000
