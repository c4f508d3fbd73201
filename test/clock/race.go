//go:build race

package clock

// RaceDetector means that the race detector is on.
const RaceDetector = true

// slowdown is the factor by which the race detector slows code down.
const slowdown = 20
