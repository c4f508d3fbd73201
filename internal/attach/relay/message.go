package relay

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// prefixSize is the size of the prefix of a gRPC message: one byte that says whether the message is compressed, and
// four bytes with the length of the message.
const prefixSize = 5

// errEncoding is the error for a compressed message with an encoding that the relay cannot decompress.
var errEncoding = errors.New("the relay does not know the encoding of a message")

// messageSize returns the size of the first message in b, including its prefix. whole reports whether b has the whole
// message. If b has only a part of the prefix, n is prefixSize.
func messageSize(b []byte) (n int, whole bool) {
	if len(b) < prefixSize {
		return prefixSize, false
	}
	n = prefixSize + int(binary.BigEndian.Uint32(b[1:]))
	return n, len(b) >= n
}

// decompress returns the content of the message b, which begins with its prefix. If the message is compressed and its
// content has more than limit bytes, decompress returns an error.
func decompress(b []byte, encoding string, limit int) ([]byte, error) {
	body := b[prefixSize:]
	if b[0] == 0 {
		return body, nil
	}
	if encoding != "gzip" {
		return nil, fmt.Errorf("%w: %q", errEncoding, encoding)
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("decompress a message: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress a message: %w", err)
	case len(out) > limit:
		return nil, fmt.Errorf("a decompressed message has more than %d bytes", limit)
	}
	return out, nil
}

// addPrefix adds the prefix of an uncompressed message. gRPC allows such a message even in a call whose headers name a
// compression.
func addPrefix(msg []byte) []byte {
	b := make([]byte, prefixSize, prefixSize+len(msg))
	setSize(b, len(msg))
	return append(b, msg...)
}

// setSize writes the message size n into the prefix at the beginning of b.
func setSize(b []byte, n int) {
	binary.BigEndian.PutUint32(b[1:], uint32(n)) //nolint:gosec // callers limit the size
}
