// Package runtimev1alpha1 has the file hooks.proto, and the Go code generated
// from it. hooks.proto defines runtime.v1alpha1.RuntimeHookService, the
// protocol between runtime proxies and hook servers. The package is here
// because the code is not published as a Go module of its own.
package runtimev1alpha1

//go:generate go run -C ../../../test/tools/protogen . ../../../api runtime/v1alpha1/hooks.proto
