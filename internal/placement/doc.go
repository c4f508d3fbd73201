// Package placement decides which CPUs each container uses. It has the ledger of CPUs that containers own,
// and the pools whose CPUs all other containers share. It does no I/O and reads no clock.
package placement
