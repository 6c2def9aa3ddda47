# Trigraph's build. One static library per folder of src/, so that the include matrix of
# ARCHITECTURE.md is also the link order; everything but app/ becomes libtrigraph.
#
#   make                    release build: build/release/trigraph
#   make V=asan test        another variant (release debug asan tsan cov), and its tests
#   make BUILD=/tmp/x       another place, spelled in one way for the dependency files
V      ?= release
BUILD  ?= build
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
B      := $(BUILD)/$(V)
PREFIX ?= /usr/local
CC     := $(if $(filter default,$(origin CC)),gcc,$(CC))
VERSION := 0.1.0
Q := $(if $(VERBOSE),,@)# make VERBOSE=1 shows the commands

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wundef -Wcast-qual -Wwrite-strings -Wswitch-enum -Werror
IS_CLANG := $(findstring clang,$(shell $(CC) --version | head -1))
ifneq ($(IS_CLANG),)
WARN += -Wmissing-variable-declarations
endif

OPT_release := -O2
OPT_debug   := -O0 -g3
OPT_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
OPT_tsan    := -O1 -g -fsanitize=thread
OPT_cov     := -O0 -g --coverage
OPT_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined

CFLAGS  = -std=c11 -g $(OPT_$(V)) -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden \
          -D_POSIX_C_SOURCE=200809L -DTG_VERSION='"$(VERSION)"' $(WARN) -Iinclude -Isrc -MMD -MP
LDFLAGS = $(filter -fsanitize% -fno-sanitize% --coverage,$(OPT_$(V))) -pthread
LDLIBS  = -ljansson -lpcre2-8 -lutf8proc -lxxhash -lm

FOLDERS := base format token jinja chat kernel ir model compile device run calibrate api app
# What a folder's tests link, in link order: itself and what it may include (token, jinja: GGUF too).
LINK_base    := base
LINK_format  := format base
LINK_token   := token format base
LINK_jinja   := jinja format base
LINK_chat    := chat jinja base
LINK_kernel  := kernel format base
LINK_ir      := ir format base
LINK_model   := model ir format base
LINK_compile := compile model kernel ir format base
LINK_device  := device kernel ir format base
LINK_run     := run device kernel ir format base
LINK_calibrate := calibrate compile run device model kernel ir format base
LINK_api     := api calibrate compile run device model kernel ir chat jinja token format base
LINK_app     := app base

objects = $(patsubst src/%.c,$(B)/%.o,$(wildcard src/$(1)/*.c src/$(1)/*/*.c))
libs    = $(foreach f,$(LINK_$(1)),$(B)/lib$(f).a)

.PHONY: all test tests clean headers syntax coverage install goldens peers fuzz fuzz-seeds FORCE
all: $(B)/trigraph $(B)/libtrigraph.so.0

# -O3 keeps register tiles in registers; with sanitizers it would compile for minutes.
TIER_OPT    := $(if $(filter release,$(V)),-O3)
TIER_avx2   := $(TIER_OPT) -mavx2 -mfma -mf16c
TIER_avx512 := $(TIER_OPT) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
$(B)/kernel/avx2.o $(B)/kernel/avx2_%.o: TIER = $(TIER_avx2)
$(B)/kernel/avx2_vnni.o $(B)/kernel/avx2_vnni_gemm.o: TIER = $(TIER_avx2) -mavxvnni
$(B)/kernel/avx512.o $(B)/kernel/avx512_%.o: TIER = $(TIER_avx512)
$(B)/kernel/avx512_attend_bf16.o: TIER = $(TIER_avx512) -mavx512bf16

# A changed flag rebuilds everything; the file changes only when its content does.
$(B)/flags: FLAGS = $(CC) $(CFLAGS) $(TIER_avx2) $(TIER_avx512)
$(B)/flags: FORCE
	@mkdir -p $(B); echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@

$(B)/%.o: src/%.c $(B)/flags
	@mkdir -p $(@D)
	@echo '  CC $@'
	$(Q)$(CC) $(CFLAGS) $(TIER) -c $< -o $@

define folder_rule
$(B)/lib$(1).a: $(call objects,$(1)) $(B)/flags
	@rm -f $$@
	$(Q)ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach f,$(FOLDERS),$(eval $(call folder_rule,$(f))))

$(B)/libtrigraph.so.0: $(call libs,api)
	@echo '  LD $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libtrigraph.so.0 -Wl,--whole-archive $^ \
	  -Wl,--no-whole-archive -Wl,-z,defs -o $@ $(LDLIBS)
	ln -sf libtrigraph.so.0 $(B)/libtrigraph.so

# One object whose hidden symbols are local: what is not public cannot clash with a user's names.
$(B)/libtrigraph.a: $(call libs,api)
	$(Q)ld -r --whole-archive $^ -o $(B)/libtrigraph.o
	$(Q)objcopy --localize-hidden $(B)/libtrigraph.o
	$(Q)ar rcs $@ $(B)/libtrigraph.o

$(B)/trigraph: $(B)/libapp.a $(call libs,api)
	@echo '  LD $@'
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS) -ledit

# ---- tests: tests/unit/<folder>/test_x.c links what <folder> may link
TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/unit/*/test_*.c tests/kernels/check_*.c \
           tests/parity/test_*.c))
define link_test
	@mkdir -p $(@D)
	@echo '  LD $@'
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -Itests $(LDFLAGS) $< $(filter %parity.c tests/oracle/%.c %.o %.a,$^) \
	  -o $@ -lcmocka $(LDLIBS)
endef
.SECONDEXPANSION:
$(B)/tests/unit/%: tests/unit/%.c $$(call libs,$$(firstword $$(subst /, ,$$*))) $(B)/flags
	$(link_test)
$(B)/tests/equal/%: tests/equal/%.c $(call libs,api) $(B)/flags
	$(link_test)
# What AVX-VNNI multiplies, for machines that have AVX-512's vpdpbusd instead.
EVEX := $(B)/tests/kernels/evex_vnni.o $(B)/tests/kernels/evex_vnni_gemm.o
$(EVEX): $(B)/tests/kernels/evex_%.o: src/kernel/avx2_%.c tools/checks/evex $(B)/flags
	@mkdir -p $(@D); tools/checks/evex $@ $< "$(CC)" $(CFLAGS) $(TIER_avx2) -mavxvnni
$(B)/tests/kernels/%: tests/kernels/%.c $(wildcard tests/kernels/*.h) $(EVEX) $(call libs,kernel) $(B)/flags
	$(link_test)
$(B)/tests/parity/%: tests/parity/%.c $(wildcard tests/parity/parity.* tests/oracle/*.[ch]) $(call libs,api) $(B)/flags
	$(link_test)

# Fuzz targets: `make V=fuzz CC=clang fuzz` builds libFuzzer programs; `make fuzz-seeds` runs the
# same targets over their seeds with any compiler.
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
$(B)/fuzz/%: tests/fuzz/fuzz_%.c tests/fuzz/driver.c $(call libs,api) $(B)/flags
	@mkdir -p $(@D)
	@echo '  LD $@'
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(if $(filter fuzz,$(V)),-fsanitize=fuzzer,tests/fuzz/driver.c) $< \
	  $(filter %.a,$^) -o $@ $(LDLIBS)
fuzz: $(FUZZ:%=$(B)/fuzz/%)
fuzz-seeds: fuzz ; @tools/checks/run-fuzz-seeds $(B)
tests: $(TESTS)
test: tests ; @tools/checks/run-tests $(TESTS)

# Every header alone, a tier's with its flags, the public ones as C++ too; and every test, unlinked.
headers syntax: ; @tools/checks/check-syntax $@ "$(TIER_avx2)" "$(TIER_avx512)" $(CC) $(filter-out -MMD -MP,$(CFLAGS))
# Lines and branches that the tests reach, per folder.
coverage: ; @tools/checks/coverage $(BUILD)
install: all $(B)/libtrigraph.a ; @tools/install $(B) $(PREFIX) $(DESTDIR)
goldens: ; @"$$(tools/venv)" tools/goldens/goldens-real # what transformers says of the real models, anew
peers: all # ratios to llama.cpp, both run in rotation
	@tools/bench/peers && tests/bench/compare
clean: ; rm -rf $(B)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
