// Package nodemetric is how much CPU and memory a node and its pods used over some
// minutes, and the form in which Koordinator's NodeMetric carries it. It is pure: it
// reads no files and no clock.
package nodemetric
