// Package hookserver calls hook servers. Hook servers are external policies that serve
// runtime.v1alpha1.RuntimeHookService. The package watches the directory in which they are registered, calls them in
// order before the agent decides about a container, and converts their answers to values. It decides nothing: the
// engine decides whether the values apply.
package hookserver
