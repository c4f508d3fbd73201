// Package hookserver owns hook servers: policies outside of Trimtab, asked over
// runtime.v1alpha1.RuntimeHookService before a container is decided. It watches the
// directory that names them, asks them in order and turns their answers into
// values. It decides nothing: the engine decides about the values.
package hookserver
