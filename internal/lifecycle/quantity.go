package lifecycle

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// The errors of Quantity.
var (
	ErrNoQuantity  = errors.New("is not a quantity")
	ErrBigQuantity = errors.New("is above 9223372036854775807")
)

// suffixFactors has the factor of each suffix as a multiplier and a divisor, for plainQuantity.
var suffixFactors = map[string][2]uint64{
	"": {1, 1}, "n": {1, 1e9}, "u": {1, 1e6}, "m": {1, 1000},
	"k": {1e3, 1}, "M": {1e6, 1}, "G": {1e9, 1}, "T": {1e12, 1}, "P": {1e15, 1}, "E": {1e18, 1},
	"Ki": {1 << 10, 1}, "Mi": {1 << 20, 1}, "Gi": {1 << 30, 1}, "Ti": {1 << 40, 1}, "Pi": {1 << 50, 1}, "Ei": {1 << 60, 1},
}

// plainQuantity parses a quantity that consists of digits with an optional fraction and suffix. It returns
// false for all other texts. It takes a tenth of the time of exactQuantity, which matters because a pod can
// have hundreds of quantities.
func plainQuantity(text string, factor int64) (int64, bool) {
	var digits uint64
	at, divide := 0, uint64(0) // divide is 0 until the decimal point
	for ; at < len(text); at++ {
		c := text[at]
		if c == '.' && divide == 0 && at > 0 {
			divide = 1
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if digits >= 1e17 || divide >= 1e17 {
			return 0, false
		}
		digits, divide = digits*10+uint64(c-'0'), divide*10
	}
	f, known := suffixFactors[text[at:]]
	if !known || at == 0 || divide == 1 {
		return 0, false
	}
	if divide = max(divide, 1); f[1] > 1 && divide > 1e9 {
		return 0, false
	}
	divide *= f[1]
	high, times := bits.Mul64(f[0], uint64(factor))
	if high != 0 {
		return 0, false
	}
	high, low := bits.Mul64(digits, times)
	if high >= divide {
		return 0, false
	}
	whole, rest := bits.Div64(high, low, divide)
	if rest > 0 {
		whole++
	}
	return int64(whole), whole <= math.MaxInt64
}

// suffixRationals has the factor of each suffix as a rational number, for exactQuantity.
var suffixRationals = map[string]*big.Rat{
	"": newRat(1, 1), "n": newRat(1, 1e9), "u": newRat(1, 1e6), "m": newRat(1, 1000),
	"k": newRat(1e3, 1), "M": newRat(1e6, 1), "G": newRat(1e9, 1), "T": newRat(1e12, 1), "P": newRat(1e15, 1), "E": newRat(1e18, 1),
	"Ki": newRat(1<<10, 1), "Mi": newRat(1<<20, 1), "Gi": newRat(1<<30, 1), "Ti": newRat(1<<40, 1), "Pi": newRat(1<<50, 1), "Ei": newRat(1<<60, 1),
}

// newRat returns the rational number a/b.
func newRat(a, b int64) *big.Rat { return big.NewRat(a, b) }

// maxQuantityBytes is the maximum length of a quantity's text, in bytes.
const maxQuantityBytes = 40

// Quantity parses a Kubernetes quantity and multiplies it by a factor. With factor 1000, "1.5" is 1500. Like
// Kubernetes' Quantity.Value and MilliValue, it rounds up to a whole number. The error is ErrNoQuantity
// or ErrBigQuantity.
//
// The grammar is that of Kubernetes' resource.Quantity, with exponents of at most two digits.
func Quantity(text string, factor int64) (int64, error) {
	if v, ok := plainQuantity(text, factor); ok {
		return v, nil
	}
	if v, err := strconv.ParseInt(text, 10, 64); err == nil && factor == 1 {
		return v, nil
	}
	return exactQuantity(text, factor)
}

// exactQuantity parses all quantities that Quantity accepts. It is slow, because it uses numbers of any size.
func exactQuantity(text string, factor int64) (int64, error) {
	number := strings.TrimRight(text, "numkKMGTPEi")
	suffix := text[len(number):]
	if len(text) > maxQuantityBytes || number == "" || strings.Trim(number, "0123456789.+-eE") != "" {
		return 0, ErrNoQuantity
	}
	scale, ok := suffixRationals[suffix]
	if i := strings.IndexAny(number, "eE"); !ok || (i >= 0 && (suffix != "" || len(number)-i > 4)) {
		return 0, ErrNoQuantity
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, ErrNoQuantity
	}
	v.Mul(v, scale).Mul(v, newRat(factor, 1))
	whole, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return 0, ErrBigQuantity
	}
	return whole.Int64(), nil
}
