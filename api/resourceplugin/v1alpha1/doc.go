// Package resourcepluginv1alpha1 is the protocol between Katalyst's QoS resource plugins and their
// manager (resourceplugin.v1alpha1), which has no Go module of its own that could be used:
// resourceplugin.proto and the code generated from it.
package resourcepluginv1alpha1

//go:generate go run -C ../../../test/tools/protogen . ../../../api resourceplugin/v1alpha1/resourceplugin.proto
