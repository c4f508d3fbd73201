// Package lifetimes starts and ends ten thousand pods, with the end events in every order, and checks that afterwards
// nothing of them stays in memory.
package lifetimes
