// Package scenarios holds scenarios as data: what happens to pods on a node, and
// what is wanted of the effective state. Its test plays each of them on the
// embedded runtime with the real agent.
package scenarios
