// Package nodemetric computes how much CPU and memory a node and its pods used over some minutes. It converts the
// result to the form of Koordinator's NodeMetric. The package reads no files and no clock.
package nodemetric
