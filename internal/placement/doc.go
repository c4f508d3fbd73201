// Package placement decides which CPUs each container uses. It has the ledger, which records the CPUs that containers
// own, and the pools, whose CPUs all other containers share. The package does no I/O and reads no clock.
package placement
