// Package lifetimes starts and ends 20,000 pods, with the end events in every order. It checks that the agent's memory
// then has no data of these pods.
package lifetimes
