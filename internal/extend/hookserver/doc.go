// Package hookserver calls hook servers: external policies that answer runtime.v1alpha1.RuntimeHookService before
// the agent decides about a container. It watches the directory that registers them, calls them in order and turns
// their answers into values. It decides nothing: the engine decides whether the values apply.
package hookserver
