package cgroup

import (
	"path"
	"strings"
)

// NameKind is the kind of a cgroup that the kubelet or a runtime made, as its name shows it.
type NameKind int

// The kinds of cgroups. Any program may use such a name: only the runtime knows the kind for
// certain.
const (
	OtherDir     NameKind = iota // any other cgroup
	PodDir                       // the cgroup of a pod
	ContainerDir                 // the cgroup of a container or of a pod sandbox
	KubepodsDir                  // the cgroup above all pods
	QoSDir                       // the cgroup above the pods of a QoS class
)

// Name is what the name of a cgroup shows: its kind, and the id of its pod or container.
type Name struct {
	Kind NameKind
	// ID is the UID of a pod or the id of a container, as the runtime writes it.
	ID string
}

// maxID limits ids in names. Kubernetes' UIDs have 36 letters, static pods' 32, runtimes' ids
// 64.
const maxID = 128

// ParseName parses the last part of a directory as kubelet and runtimes write it: "podUID" and
// "ID" (cgroupfs driver), "…-podUID.slice" with underscores for dashes and "prefix-ID.scope"
// (systemd driver). It is the inverse of Path and PodPath for one part.
func ParseName(dir string) Name {
	name := path.Base(dir)
	switch base, isSlice := strings.CutSuffix(name, slice); {
	case isSlice:
		return parseSlice(base)
	case name == "kubepods":
		return Name{Kind: KubepodsDir}
	case name == "burstable" || name == "besteffort":
		return Name{Kind: QoSDir}
	}
	if uid, ok := strings.CutPrefix(name, "pod"); ok && isID(uid) {
		return Name{PodDir, uid}
	}
	unit, isScope := strings.CutSuffix(name, ".scope")
	if !isScope {
		if isContainerID(name) {
			return Name{ContainerDir, name}
		}
		return Name{}
	}
	prefix, id, ok := cutLast(unit, "-")
	if !ok || prefix == "" || !isContainerID(id) || strings.HasSuffix(prefix, "conmon") {
		return Name{} // conmon is a helper process of CRI-O, which has its own cgroup beside the container's
	}
	return Name{ContainerDir, id}
}

// parseSlice parses the name of a slice without the suffix ".slice".
func parseSlice(base string) Name {
	above, last, ok := cutLast(base, "-")
	if !ok {
		last = base
	}
	switch uid, isPod := strings.CutPrefix(last, "pod"); {
	case last == "kubepods":
		return Name{Kind: KubepodsDir}
	case (last == "burstable" || last == "besteffort") && (above == "kubepods" || strings.HasSuffix(above, "-kubepods")):
		return Name{Kind: QoSDir}
	case ok && isPod && isID(uid):
		return Name{PodDir, strings.ReplaceAll(uid, "_", "-")}
	}
	return Name{}
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// isID reports whether text can be a pod's UID: 1 to maxID letters, digits, dashes and underscores.
func isID(text string) bool {
	if text == "" || len(text) > maxID {
		return false
	}
	return onlyOf(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")
}

// isContainerID reports whether text is a container id of 64 hexadecimal digits, as runtimes that serve a kubelet use
// it. It is stricter than isID, because isID accepts almost every directory name.
func isContainerID(text string) bool {
	return len(text) == 64 && onlyOf(text, "0123456789abcdef")
}

func onlyOf(text, letters string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(letters, r) })
}
