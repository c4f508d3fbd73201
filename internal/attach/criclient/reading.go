package criclient

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/protofields"
)

// configRow describes one field of ContainerConfig. If read is nil, the field is not converted, and note says why. If
// proto ends in ".", it names a message, and the row is for all fields of this message.
type configRow struct {
	proto, lifecycle string           // the names of the field in the CRI and in package lifecycle
	number           protowire.Number // the field's number in ContainerConfig (api.proto of the CRI, v1)
	read             func(r *configDecoder, b []byte) error
	note             string
}

// configReaders has the read functions by field number.
var configReaders = func() (of [32]func(r *configDecoder, b []byte) error) {
	for _, row := range containerTable {
		if row.read != nil {
			of[row.number] = row.read
		}
	}
	return of
}()

// configDecoder decodes a ContainerConfig from the bytes of a request. It must be fast, because the kubelet waits for
// the answer to the request. It therefore decodes into lifecycle types directly, and all strings share one buffer. As
// everywhere in protobuf, the last occurrence of a field counts, messages that occur twice are merged, and unknown
// fields are skipped.
type configDecoder struct {
	container *lifecycle.Container
	buffer    strings.Builder // has all decoded strings

	commands, arguments []string // the fields command and args

	options []string // the mount options of all mounts, two for each mount; each mount's Options is a slice of this list

	resources *criResources // nil if the request has no linux.resources
}

var errNotUTF8 = errors.New("a string of the request is not UTF-8")

// ContainerOfConfig reads a container's configuration from the bytes of a request. ok is false for a malformed
// configuration.
func ContainerOfConfig(config []byte, pod string) (l *lifecycle.Container, ok bool) {
	l = &lifecycle.Container{PodID: pod, State: lifecycle.StateCreated}
	r := &configDecoder{container: l}
	r.allocate(config)
	err := protofields.Each(config, func(n protowire.Number, _ uint64, b []byte) error {
		if b == nil || int(n) >= len(configReaders) || configReaders[n] == nil {
			return nil
		}
		return configReaders[n](r, b)
	})
	if err != nil {
		return nil, false
	}
	if l.Image != nil && *l.Image == (lifecycle.Image{}) {
		l.Image = nil
	}
	if r.resources != nil {
		convert(resourceTable, r.resources, &l.Resources)
		l.OOMScoreAdj = lifecycle.Some(r.resources.OomScoreAdj) // 0 is a valid score and does not mean unset
	}
	l.Args = append(r.commands, r.arguments...)
	l.CompactIDs() // the agent stores some strings for long, and these strings must not keep the whole buffer in memory
	return l, true
}

// allocate allocates the memory for all strings, and for the lists and maps of the fields that most containers have. It
// counts the fields before configDecoder decodes them.
func (r *configDecoder) allocate(config []byte) {
	var n [len(configReaders)]int
	size := 0
	_ = protofields.Each(config, func(number protowire.Number, _ uint64, b []byte) error {
		if int(number) < len(n) && configReaders[number] != nil {
			n[number]++
			size += len(b)
		}
		return nil
	})
	r.buffer.Grow(size) // size is a little more than the strings need
	if n[6] > 0 {
		r.container.Env = make([]string, 0, n[6])
	}
	if n[7] > 0 {
		r.container.Mounts, r.options = make([]lifecycle.Mount, 0, n[7]), make([]string, 0, 2*n[7])
	}
	if n[9] > 0 {
		r.container.Labels = make(map[string]string, n[9])
	}
	if n[10] > 0 {
		r.container.Annotations = make(map[string]string, n[10])
	}
}

// readString copies the bytes of a field to the buffer, and returns them as a string.
func (r *configDecoder) readString(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errNotUTF8
	}
	from := r.buffer.Len()
	r.buffer.Write(b)
	return r.buffer.String()[from:], nil
}

// stringField is the number of a string field, and the destination of its value.
type stringField struct {
	number protowire.Number
	to     *string
}

// readStrings reads string fields into their destinations.
func (r *configDecoder) readStrings(b []byte, into ...stringField) error {
	return protofields.Each(b, func(n protowire.Number, _ uint64, b []byte) (err error) {
		for _, f := range into {
			if f.number == n && b != nil {
				*f.to, err = r.readString(b)
			}
		}
		return err
	})
}

// addPair reads an entry of a protobuf map, and adds the entry to the Go map into.
func (r *configDecoder) addPair(into map[string]string, b []byte) error {
	var key, value string
	err := r.readStrings(b, stringField{1, &key}, stringField{2, &value})
	into[key] = value
	return err
}

// readMetadata reads the name of the container.
func (r *configDecoder) readMetadata(b []byte) error {
	return r.readStrings(b, stringField{1, &r.container.Name})
}

// readImage reads the reference of the image, and the name that the user specified.
func (r *configDecoder) readImage(b []byte) error {
	if r.container.Image == nil {
		r.container.Image = &lifecycle.Image{}
	}
	return r.readStrings(b, stringField{1, &r.container.Image.Digest}, stringField{18, &r.container.Image.Name}) // image, user_specified_image
}

// addString reads a string, and adds it to a list.
func (r *configDecoder) addString(list *[]string, b []byte) error {
	text, err := r.readString(b)
	*list = append(*list, text)
	return err
}

// readEnv reads an environment variable. The variable's value may be invalid UTF-8.
func (r *configDecoder) readEnv(b []byte) error {
	var key, value []byte
	if err := protofields.Each(b, func(n protowire.Number, _ uint64, b []byte) error {
		switch {
		case b == nil:
		case n == 1:
			key = b
		case n == 2:
			value = b
		}
		return nil
	}); err != nil {
		return err
	}
	from := r.buffer.Len()
	_, err := r.readString(key)
	r.buffer.WriteByte('=')
	r.buffer.Write(value)
	r.container.Env = append(r.container.Env, r.buffer.String()[from:])
	return err
}

// readMount reads a bind mount.
func (r *configDecoder) readMount(b []byte) error {
	m := lifecycle.Mount{Type: "bind"}
	access := "rw"
	err := protofields.Each(b, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch {
		case n == 1 && b != nil: // container_path
			m.Destination, err = r.readString(b)
		case n == 2 && b != nil: // host_path
			m.Source, err = r.readString(b)
		case n == 3 && b == nil: // readonly
			if access = "rw"; v != 0 {
				access = "ro"
			}
		}
		return err
	})
	at := len(r.options)
	r.options = append(r.options, "rbind", access)
	m.Options = r.options[at : at+2 : at+2]
	r.container.Mounts = append(r.container.Mounts, m)
	return err
}

// readDevice reads a device. The CRI has only the device's path in the container.
func (r *configDecoder) readDevice(b []byte) error {
	var path string
	err := r.readStrings(b, stringField{1, &path})
	r.container.Devices = append(r.container.Devices, lifecycle.Device{Path: strings.Clone(path)})
	return err
}

// readCDIDevice reads the name of a CDI device.
func (r *configDecoder) readCDIDevice(b []byte) error {
	var name string
	err := r.readStrings(b, stringField{1, &name})
	r.container.CDIDevices = append(r.container.CDIDevices, strings.Clone(name))
	return err
}

// readLinux reads the resources of a LinuxContainerConfig.
func (r *configDecoder) readLinux(b []byte) error {
	return protofields.Each(b, func(n protowire.Number, _ uint64, b []byte) error {
		if n != 1 || b == nil {
			return nil
		}
		if r.resources == nil {
			r.resources = &criResources{}
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, r.resources)
	})
}
