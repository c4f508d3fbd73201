//go:build race

package clock

// slowdown is the factor by which the race detector slows code down.
const slowdown = 20
