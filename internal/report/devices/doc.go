// Package devices reads the GPUs and RDMA cards of a node from /proc and /sys, and converts them to the form of
// Koordinator's Device. It does not use the vendors' libraries. So it does not know the memory size or health of a GPU.
package devices
