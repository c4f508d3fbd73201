// Package bypass attaches beside the runtime: it asks the CRI what runs, watches
// the kubelet's cgroups, and turns both into lifecycle events. Nothing is in the
// request path, so nothing is carried in-line: what is decided goes to the
// kernel's files as soon as a container's cgroup exists. It never writes a
// kernel file itself.
package bypass
