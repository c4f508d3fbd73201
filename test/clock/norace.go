//go:build !race

package clock

// RaceDetector reports whether the race detector is on.
const RaceDetector = false

// slowdown is the factor by which the race detector slows code down: it is off.
const slowdown = 1
