# As on a machine where cores are far from each other, whatever this one is.
local.pull_bytes = 1
local.lane_bytes = 4194304
