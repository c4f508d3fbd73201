//go:build !race

package clock

// slowdown is how much longer code takes than its limit says: the race detector is off.
const slowdown = 1
