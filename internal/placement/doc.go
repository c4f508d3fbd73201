// Package placement decides which CPUs each container uses: it has the ledger of owned CPUs,
// and the pools that all other containers share. It is pure, and reads no clock.
package placement
