package cgroup

import (
	"path"
	"strings"
)

// NameKind is the kind of a cgroup, as the cgroup's name shows it. Kubelet and runtimes give a cgroup its name.
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

// maxIDLength is the largest length of an id in a name. The UIDs of pods have 36 characters, those of
// static pods 32, and the ids of containers 64.
const maxIDLength = 128

// ParseName parses the last part of a directory as kubelet and runtimes write it: "podUID" and
// "ID" (cgroupfs driver), "…-podUID.slice" with underscores for dashes and "prefix-ID.scope"
// (systemd driver).
func ParseName(dir string) Name {
	name := path.Base(dir)
	switch base, isSlice := strings.CutSuffix(name, sliceSuffix); {
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

// cutLast cuts s around the last sep. If s has no sep, it returns s, "" and false.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// isID reports whether text can be a pod's UID: 1 to maxIDLength letters, digits, dashes and underscores.
func isID(text string) bool {
	if text == "" || len(text) > maxIDLength {
		return false
	}
	return hasOnlyLetters(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")
}

// isContainerID reports whether text is a container id of 64 hexadecimal digits, the form that containerd and CRI-O
// use. It is stricter than isID, because isID accepts almost every directory name.
func isContainerID(text string) bool {
	return len(text) == 64 && hasOnlyLetters(text, "0123456789abcdef")
}

// hasOnlyLetters reports whether text has only the given letters.
func hasOnlyLetters(text, letters string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(letters, r) })
}
