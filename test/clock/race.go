//go:build race

package clock

// slowdown is how much longer code takes that the race detector watches.
const slowdown = 20
