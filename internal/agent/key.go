package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// keySize is the size of the secret that signs records, in bytes.
const keySize = 32

// recordKey reads the secret that signs records, and makes it at the first
// start. Without a file name the secret lasts as long as the process.
func recordKey(file string) ([]byte, error) {
	if file == "" {
		return newKey(), nil
	}
	key, err := os.ReadFile(file)
	switch {
	case err == nil && len(key) == keySize:
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("record key %s (paths.key): %d bytes instead of %d; delete it to have a new one made: containers stamped with the old one are then decided anew",
			file, len(key), keySize)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("record key (paths.key): %w", err)
	}
	key = newKey()
	if err := writeFile(file, key); err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	return key, nil
}

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}
