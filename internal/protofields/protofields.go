// Package protofields reads fields of protobuf messages by their numbers. It is for code that must not spend the time to
// decode the whole message.
package protofields

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Each calls visit for each field of the wire types varint and bytes, and skips other fields. n is the field's number.
// For a varint, v is the value, and bytes is nil. For the type bytes, v is 0, and bytes has the content and is not nil.
func Each(b []byte, visit func(n protowire.Number, v uint64, bytes []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("read the tag of a protobuf field: %w", protowire.ParseError(size))
		}
		b = b[size:]
		var err error
		switch kind {
		case protowire.VarintType:
			var v uint64
			if v, size = protowire.ConsumeVarint(b); size >= 0 {
				err = visit(n, v, nil)
			}
		case protowire.BytesType:
			var v []byte
			if v, size = protowire.ConsumeBytes(b); size >= 0 {
				err = visit(n, 0, v[:len(v):len(v)])
			}
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return fmt.Errorf("read protobuf field %d: %w", n, protowire.ParseError(size))
		}
		if err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
