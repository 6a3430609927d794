# As on a machine where cores are near each other, whatever this one is.
local.pull_bytes = 1000000000
local.lane_bytes = 1
