package qrm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// rawAnswerCodec encodes and decodes messages in the same way as gRPC's own codec. It decodes an answer into a
// rawAnswer, and can also store the bytes of the answer there.
type rawAnswerCodec struct{}

// rawAnswer is where rawAnswerCodec stores an answer and its bytes. raw is nil if the caller does not need the bytes.
type rawAnswer struct {
	message proto.Message
	raw     *[]byte
}

var _ encoding.CodecV2 = rawAnswerCodec{}

// Name returns the name of gRPC's own codec, so that the content type of calls does not change.
func (rawAnswerCodec) Name() string { return "proto" }

// Marshal encodes a request.
func (rawAnswerCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode a request of type %T: it is not a proto.Message", v)
	}
	data, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

// Unmarshal decodes an answer.
func (rawAnswerCodec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*rawAnswer)
	if !ok {
		return fmt.Errorf("decode an answer of type %T: it is not a *rawAnswer", v)
	}
	all := data.Materialize()
	if a.raw != nil {
		*a.raw = all
	}
	return proto.Unmarshal(all, a.message)
}

// keysWithoutValue returns the keys of a map field whose entries have no value. Katalyst's plugins (gogo) encode a nil
// message as an entry without a value. A nil message means that the plugin has no preference, and an empty message
// means that the resource is not available. Decoded messages do not show this difference, so keysWithoutValue reads the
// bytes.
func keysWithoutValue(message []byte, field protowire.Number) map[string]bool {
	out := map[string]bool{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return out
		}
		message = message[n:]
		if number != field || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return out
			}
			message = message[n:]
			continue
		}
		entry, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return out
		}
		message = message[n:]
		if key, value := mapEntry(entry); !value {
			out[key] = true
		} else {
			delete(out, key) // the last entry of a key counts
		}
	}
	return out
}

// mapEntry returns the key of an entry of a map field. value reports whether the entry has a value.
func mapEntry(entry []byte) (key string, value bool) {
	const keyField, valueField = 1, 2
	for len(entry) > 0 {
		number, kind, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return key, value
		}
		entry = entry[n:]
		if n = protowire.ConsumeFieldValue(number, kind, entry); n < 0 {
			return key, value
		}
		switch {
		case number == keyField && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(entry)
			key = string(text)
		case number == valueField:
			value = true
		}
		entry = entry[n:]
	}
	return key, value
}

// maxShown limits an untrusted text in a message, in bytes.
const maxShown = 300

// shorten shortens an untrusted text, and replaces its control characters.
func shorten(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// isResourceName reports whether a text can be the name of a resource: an optional domain, and a name of letters,
// digits, "-", "_" and ".".
func isResourceName(s string) bool {
	const maxName = 253 + 1 + 63 // of a qualified name in Kubernetes
	domain, name, qualified := strings.Cut(s, "/")
	if !qualified {
		domain, name = "x", s
	}
	plain := func(part string) bool {
		return part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
	}
	return len(s) <= maxName && plain(domain) && plain(name)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
