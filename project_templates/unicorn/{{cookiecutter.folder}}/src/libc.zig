//! What of the C library neither Zig's compiler_rt nor the C sources of musl beside it have: Zig's own functions, by their
//! C names.
const std = @import("std");
const math = std.math;

fn Function(comptime T: type, comptime name: []const u8) type {
    return struct {
        fn call(x: T) callconv(.c) T {
            return @field(math, name)(x);
        }
    };
}

/// Round to the nearest integer, ties to even: adding 2^(mantissa's bits) leaves no fraction.
fn nearest(comptime T: type, x: T) T {
    const large: T = @as(T, 1) / math.floatEps(T);
    if (!(@abs(x) < large)) return x;
    const sum = if (math.signbit(x)) blk: {
        const down: T = x - large;
        std.mem.doNotOptimizeAway(down);
        break :blk down + large;
    } else blk: {
        const up: T = x + large;
        std.mem.doNotOptimizeAway(up);
        break :blk up - large;
    };
    return math.copysign(sum, x);
}

fn Rest(comptime T: type) type {
    return struct {
        fn rint(x: T) callconv(.c) T {
            return nearest(T, x);
        }
        fn lrint(x: T) callconv(.c) c_long {
            return @intFromFloat(nearest(T, x));
        }
        fn copysign(x: T, y: T) callconv(.c) T {
            return math.copysign(x, y);
        }
        fn frexp(x: T, exponent: *c_int) callconv(.c) T {
            const parts = math.frexp(x);
            exponent.* = parts.exponent;
            return parts.significand;
        }
    };
}

fn memchr(bytes: [*]const u8, byte: c_int, count: usize) callconv(.c) ?*const u8 {
    const at = std.mem.indexOfScalar(u8, bytes[0..count], @truncate(@as(c_uint, @bitCast(byte)))) orelse return null;
    return &bytes[at];
}

fn strcmp(a: [*:0]const u8, b: [*:0]const u8) callconv(.c) c_int {
    var i: usize = 0;
    while (a[i] == b[i] and a[i] != 0) i += 1;
    return @as(c_int, a[i]) - @as(c_int, b[i]);
}

comptime {
    @export(&memchr, .{ .name = "memchr" });
    @export(&strcmp, .{ .name = "strcmp" });
    for ([_][]const u8{ "acos", "acosh", "asin", "atan", "cosh", "log1p", "tanh" }) |name| {
        @export(&Function(f64, name).call, .{ .name = name });
    }
    for ([_][]const u8{ "acos", "acosh", "atan", "cosh", "log1p", "tanh" }) |name| {
        @export(&Function(f32, name).call, .{ .name = name ++ "f" });
    }
    for ([_][]const u8{ "rint", "lrint", "copysign", "frexp" }) |name| {
        @export(&@field(Rest(f64), name), .{ .name = name });
        @export(&@field(Rest(f32), name), .{ .name = name ++ "f" });
    }
}
