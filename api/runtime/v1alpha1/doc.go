// Package runtimev1alpha1 is the protocol between runtime proxies and hook
// servers (runtime.v1alpha1.RuntimeHookService), which has no Go module of its
// own that could be used: hooks.proto and the code generated from it.
package runtimev1alpha1

//go:generate go run -C ../../../test/tools/protogen . ../../../api runtime/v1alpha1/hooks.proto
