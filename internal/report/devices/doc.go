// Package devices is which GPUs and RDMA cards a node has, read from /proc and /sys, and the form in which Koordinator's
// Device carries them. It asks no vendor's library, so it does not know a GPU's memory or health.
package devices
