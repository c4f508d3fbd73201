package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/trust"
)

// maxCheckpoint is the largest size of the checkpoint file, in bytes.
const maxCheckpoint = 32 << 20

// claim is a resource claim in the checkpoint of the kubelet's DRA manager.
type claim struct {
	ClaimUID, ClaimName, Namespace string
	PodUIDs                        uids // the pods that use the claim
	// DriverState has the CDI devices, by the name of the driver. Kubernetes before 1.31 writes CDIDevices instead.
	DriverState map[string]struct {
		Devices []struct{ CDIDeviceIDs []string }
	}
	CDIDevices map[string][]string
}

// devices returns the names of the CDI devices of a claim, sorted.
func (c claim) devices() (names []string) {
	for _, of := range c.DriverState {
		for _, d := range of.Devices {
			names = append(names, d.CDIDeviceIDs...)
		}
	}
	for _, all := range c.CDIDevices {
		names = append(names, all...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// classDevices returns the names of those CDI devices of a claim that select a class, pool or balloon type.
func (c claim) classDevices() []string {
	return slices.DeleteFunc(c.devices(), func(name string) bool { return !lifecycle.IsClassDevice(name) || len(name) > maxDeviceName })
}

// name returns the namespace and name of a claim as namespace/name, or "" for the zero claim.
func (c claim) name() string {
	if c.ClaimName == "" {
		return ""
	}
	return c.Namespace + "/" + c.ClaimName
}

// uids is a set of UIDs. The kubelet writes it as a JSON object with a member for each UID.
type uids map[string]bool

// UnmarshalJSON reads the UIDs from an object, whose keys are the UIDs, or from a list.
func (u *uids) UnmarshalJSON(data []byte) error {
	*u = uids{}
	var list []string
	if json.Unmarshal(data, &list) == nil {
		for _, uid := range list {
			(*u)[uid] = true
		}
		return nil
	}
	var set map[string]json.RawMessage
	if err := json.Unmarshal(data, &set); err != nil {
		return err
	}
	for uid := range set {
		(*u)[uid] = true
	}
	return nil
}

// checkpointFile is the JSON of the checkpoint. Kubernetes before 1.32 wrote the claims in the member entries. The
// agent cannot verify the checksum of that form, because the kubelet computes the checksum from its own Go values.
type checkpointFile struct {
	Data      *string `json:"Data"`
	Checksum  uint64  `json:"Checksum"`
	Version   string  `json:"version"`
	OldClaims []claim `json:"entries"`
}

// checkpointData is the JSON in the field Data of a checkpointFile.
type checkpointData struct {
	Kind               string  `json:"kind"`
	ClaimInfoStateList []claim // Kubernetes 1.32 and later
	Entries            []claim
}

// checkpointKind is the only valid value of checkpointData.Kind.
const checkpointKind = "DRACheckpoint"

// readCheckpointText returns the text of the kubelet's checkpoint. If there is no such file, it returns nil without an
// error.
func readCheckpointText(path string, read func(string) ([]byte, error)) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case text == nil:
		text = []byte{}
	}
	return text, nil
}

// readFile reads a checkpoint of the node. It returns an error for a symbolic link, and for a file that is not regular.
// It also returns an error if users other than root and the user of the agent can write the file.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // a file that the configuration names
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("the file is not a regular file")
	}
	if err := trust.CheckWriters(info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err == nil && len(text) > maxCheckpoint {
		err = fmt.Errorf("the file has more than %d bytes", maxCheckpoint)
	}
	return text, err
}

// parseCheckpoint returns the claims of a checkpoint, by the UID of the claim.
func parseCheckpoint(text []byte) (map[string]claim, error) {
	var f checkpointFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	all := f.OldClaims
	switch {
	case f.Data != nil:
		if sum := crc32.ChecksumIEEE([]byte(*f.Data)); uint64(sum) != f.Checksum {
			return nil, fmt.Errorf("the file has the checksum %d, but the data in the file has the checksum %d", f.Checksum, sum)
		}
		var d checkpointData
		if err := json.Unmarshal([]byte(*f.Data), &d); err != nil {
			return nil, err
		}
		if d.Kind != checkpointKind {
			return nil, fmt.Errorf("the file has kind %q, want %s", printable(d.Kind), checkpointKind)
		}
		all = append(d.ClaimInfoStateList, d.Entries...)
	case f.Version == "":
		return nil, errors.New("the file has neither data nor a version")
	}
	claims := make(map[string]claim, len(all))
	for _, c := range all {
		claims[c.ClaimUID] = c
	}
	return claims, nil
}
