//go:build !race

package clock

// RaceDetector means that the race detector is on.
const RaceDetector = false

// slowdown is the factor by which the race detector slows code down. It is 1, because the race detector is off.
const slowdown = 1
