// Package nodemetric computes how much CPU and memory a node and its pods used over some minutes. It converts that
// to the form of Koordinator's NodeMetric. It is pure: it reads no files and no clock.
package nodemetric
