// Package placement decides who sits where: the ledger of CPUs that containers
// own, and the pools everybody else shares. It is pure and holds no clock.
package placement
