// Package hookserver owns hook servers: policies outside of Trimtab, asked over
// runtime.v1alpha1.RuntimeHookService before a container is decided. It follows
// the directory that names them, asks them in order and turns what they answer
// into values. It decides nothing: what becomes of the values is the engine's.
package hookserver
