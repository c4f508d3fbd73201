// Package lifetimes starts and ends 20,000 pods. The events at the end of a pod come in every possible order. The
// package checks that the agent's memory has no data of these pods afterwards.
package lifetimes
