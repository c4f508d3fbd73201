// Package resourcepluginv1alpha1 has the gRPC protocol between Katalyst's QoS resource plugins and Katalyst's plugin
// manager: the file resourceplugin.proto, and the code generated from this file. No Go module has only this protocol,
// so the project keeps a copy.
package resourcepluginv1alpha1

//go:generate go run -C ../../../test/tools/protogen . ../../../api resourceplugin/v1alpha1/resourceplugin.proto
