package bucket_test

import (
	"testing"

	"github.com/rewind-kafka/rewind/internal/storetest"
)

func TestStores(t *testing.T) { storetest.Each(t, storetest.Suite) }
