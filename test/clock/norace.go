//go:build !race

package clock

// slowdown is the factor by which the race detector slows code down: it is off.
const slowdown = 1
