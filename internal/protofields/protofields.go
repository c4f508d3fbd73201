// Package protofields reads fields of protobuf messages by their numbers, where decoding the whole message would cost too
// much.
package protofields

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Each calls visit for the fields of the types varint and bytes, and skips other fields. bytes is nil only for a
// varint.
func Each(b []byte, visit func(n protowire.Number, v uint64, bytes []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("tag of a field: %w", protowire.ParseError(size))
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
			return fmt.Errorf("field %d: %w", n, protowire.ParseError(size))
		}
		if err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
